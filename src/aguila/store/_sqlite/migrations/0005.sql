-- The lock file in which the owner of a run held its lock when it became the owner; null if it held none.
ALTER TABLE runs ADD COLUMN lock INTEGER;
