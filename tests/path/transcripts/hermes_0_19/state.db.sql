CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT, chat_type TEXT,
  thread_id TEXT, display_name TEXT, origin_json TEXT, expiry_finalized INTEGER DEFAULT 0, model TEXT, model_config TEXT,
  system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT,
  message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
  output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0,
  reasoning_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT, git_repo_root TEXT, billing_provider TEXT,
  billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT,
  cost_source TEXT, pricing_version TEXT, title TEXT, api_call_count INTEGER DEFAULT 0, profile_name TEXT,
  rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
  tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, effect_disposition TEXT, timestamp REAL NOT NULL, token_count INTEGER,
  finish_reason TEXT, reasoning TEXT, reasoning_content TEXT, reasoning_details TEXT, platform_message_id TEXT,
  observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT);
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (22);
INSERT INTO sessions (id, source, model, system_prompt, started_at, ended_at, end_reason, title, cwd, git_branch, input_tokens,
  output_tokens, actual_cost_usd)
VALUES ('h1', 'cli', 'big', 'Be kind.', 1700000000.0, 1700000005.0, 'compression', 'Build', '/srv/x', 'main', 10, 2, 0.5);
INSERT INTO sessions (id, source, model, system_prompt, parent_session_id, started_at, cwd, git_branch, input_tokens, output_tokens)
VALUES ('h2', 'cli', 'big', 'Be kind.', 'h1', 1700000008.0, '/srv/x', 'main', 10, 2);
INSERT INTO messages (session_id, role, content, timestamp, active, compacted)
VALUES ('h1', 'user', 'Fix the build', 1700000000.0, 0, 1), ('h1', 'user', 'Never mind', 1700000001.0, 0, 0);
INSERT INTO messages (session_id, role, tool_calls, timestamp, reasoning)
VALUES ('h1', 'assistant', '[{"id": "c1", "function": {"name": "sh", "arguments": "{}"}}]', 1700000002.0, 'Look.');
INSERT INTO messages (session_id, role, content, tool_call_id, tool_name, timestamp) VALUES ('h1', 'tool', 'ok', 'c1', 'sh', 1700000003.0);
INSERT INTO messages (session_id, role, content, timestamp)
VALUES ('h2', 'user', char(0) || 'json:[{"type": "text", "text": "Go on"}]', 1700000009.0);
