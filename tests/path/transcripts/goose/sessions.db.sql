CREATE TABLE sessions (id TEXT, name TEXT, session_type TEXT, working_dir TEXT, created_at TEXT, model_config_json TEXT, accumulated_input_tokens INT, accumulated_output_tokens INT);
CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT, created_timestamp INT);
INSERT INTO sessions VALUES ('1', 'Files', 'user', '/srv/x', '2024-02-03T10:00:00Z', '{"model_name": "big"}', 8, 3);
INSERT INTO sessions VALUES ('2', 'Inner', 'sub_agent', '/srv/x', '2024-02-03T10:00:00Z', NULL, 0, 0);
INSERT INTO messages VALUES (1, 'a', '1', 'user', '[{"type": "text", "text": "List"}]', 1700000000);
INSERT INTO messages VALUES (2, 'b', '1', 'assistant', '[{"type": "toolRequest", "id": "k", "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}}]', 1700000001);
INSERT INTO messages VALUES (3, 'c', '1', 'user', '[{"type": "toolResponse", "id": "k", "toolResult": {"status": "success", "value": [{"type": "text", "text": "a.txt"}]}}]', 1700000002);
