CREATE TABLE ItemTable (key TEXT, value BLOB);
INSERT INTO ItemTable VALUES ('composer.composerData', '{"allComposers": [{"composerId": "q1"}]}');
