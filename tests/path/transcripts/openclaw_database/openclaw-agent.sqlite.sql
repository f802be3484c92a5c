CREATE TABLE transcript_events (session_id TEXT, seq INT, event_json TEXT, created_at INT);
CREATE TABLE session_windows (session_id TEXT, previous_session_id TEXT, reason TEXT, model TEXT);
CREATE TABLE auth_profile_store (secret TEXT);
CREATE TABLE session_nodes (current_session_id TEXT, display_name TEXT);
INSERT INTO transcript_events VALUES ('w1', 1, '{"type": "message", "id": "m1", "parentId": "m0", "timestamp": "2024-02-03T10:00:00Z", "message": {"role": "user", "content": "Hello"}}', 1);
INSERT INTO transcript_events VALUES ('w1', 2, '{"type": "message", "id": "m2", "parentId": "m1", "timestamp": "2024-02-03T10:00:00Z", "message": {"role": "assistant", "content": "Hi"}}', 2);
INSERT INTO transcript_events VALUES ('w1', 3, '{broken', 3);
INSERT INTO session_windows VALUES ('w1', NULL, 'new', 'big');
INSERT INTO session_nodes VALUES ('w1', 'Chat');
