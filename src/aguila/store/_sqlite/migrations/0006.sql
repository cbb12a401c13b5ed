-- The number of the lock file, if the process that watches holds its lock: see "runs.lock".
ALTER TABLE viewers ADD COLUMN lock INTEGER;
