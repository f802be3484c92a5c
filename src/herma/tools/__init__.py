"""The tools that a model can call.

registry        Tool, Tools, ToolContext
memory          the memory tool
session_search  the session_search tool
skills          skills_list, skill_view, skill_manage
"""
