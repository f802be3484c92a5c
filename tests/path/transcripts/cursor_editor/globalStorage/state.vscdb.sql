CREATE TABLE ItemTable (key TEXT, value BLOB);
CREATE TABLE cursorDiskKV (key TEXT, value BLOB);
INSERT INTO cursorDiskKV VALUES ('composerData:q1', '{"composerId": "q1", "name": "A chat", "createdAt": 1700000000000, "fullConversationHeadersOnly": [{"bubbleId": "b1", "type": 1}, {"bubbleId": "b2", "type": 2}, {"bubbleId": "lost", "type": 2}]}');
INSERT INTO cursorDiskKV VALUES ('bubbleId:q1:b1', '{"type": 1, "text": "Fix it"}');
INSERT INTO cursorDiskKV VALUES ('bubbleId:q1:b2', '{"type": 2, "text": "Done", "thinking": {"text": "Hm"}, "toolFormerData": {"name": "edit", "toolCallId": "t", "rawArgs": "{}", "result": "edited"}}');
