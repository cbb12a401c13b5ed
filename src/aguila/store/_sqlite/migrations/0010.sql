-- The agent that a thread belongs to. Until now an app had one agent, which had no name.
ALTER TABLE threads ADD COLUMN agent TEXT NOT NULL DEFAULT 'default';
ALTER TABLE threads ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;

-- In a table of its own: every append rewrites the row of its thread.
CREATE TABLE details (thread INTEGER PRIMARY KEY, title TEXT, metadata BLOB);
