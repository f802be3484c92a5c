"""Skills: written procedures, kept as SKILL.md files, found for a task, and known by how they did."""
