-- The index of the metadata counts as twice its bytes; see "size_of_details".
UPDATE threads SET bytes = bytes + 2 * (SELECT length(metadata) FROM details WHERE thread = key)
WHERE key IN (SELECT thread FROM details WHERE metadata IS NOT NULL);
