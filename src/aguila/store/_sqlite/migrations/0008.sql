-- What a health check writes is as much as a small run: a single page may fit where nothing else does.
ALTER TABLE checks ADD COLUMN body BLOB;
