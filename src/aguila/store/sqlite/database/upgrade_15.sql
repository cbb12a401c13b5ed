ALTER TABLE messages RENAME TO old_messages;
CREATE TABLE messages (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  body BLOB NOT NULL,
  files BLOB,
  PRIMARY KEY (thread, digest)
);
INSERT INTO messages SELECT thread, digest, body, files FROM old_messages;
DROP TABLE old_messages;
ALTER TABLE projected_values RENAME TO old_values;
CREATE TABLE projected_values (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  files BLOB, -- the places of inline files in the body
  body BLOB NOT NULL,
  PRIMARY KEY (thread, digest)
);
INSERT INTO projected_values SELECT thread, digest, files, body FROM old_values;
DROP TABLE old_values;
