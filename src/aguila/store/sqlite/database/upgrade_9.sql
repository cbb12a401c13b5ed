-- Schema 9 had one agent, without a name, and threads without a title.
ALTER TABLE threads ADD COLUMN agent TEXT NOT NULL DEFAULT 'default';
ALTER TABLE threads ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
CREATE TABLE details (thread INTEGER PRIMARY KEY, title TEXT, metadata BLOB);
