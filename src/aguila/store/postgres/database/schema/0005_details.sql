-- Change the title, the archived flag and the metadata of a thread, whose row is locked. If p_sets_title is null, p_title
-- becomes the title of a thread that has none. Metadata counts three times, since it is indexed: see "size_of_details".
CREATE OR REPLACE FUNCTION aguila.update_details(
  p_thread bigint, p_sets_title boolean, p_title text, p_archived boolean, p_sets_metadata boolean, p_metadata bytea,
  p_members text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  old aguila.details;
  sets_title boolean;
BEGIN
  SELECT * INTO old FROM aguila.details WHERE thread = p_thread;
  sets_title := coalesce(p_sets_title, old.title IS NULL);
  INSERT INTO aguila.details (thread, title, metadata, members)
  VALUES (p_thread, CASE WHEN sets_title THEN p_title ELSE old.title END,
    CASE WHEN p_sets_metadata THEN p_metadata ELSE old.metadata END,
    CASE WHEN p_sets_metadata THEN p_members::bigint[] ELSE coalesce(old.members, '{}') END)
  ON CONFLICT (thread) DO UPDATE SET title = excluded.title, metadata = excluded.metadata, members = excluded.members;
  UPDATE aguila.threads SET archived = coalesce(p_archived, archived), bytes = bytes
    + CASE WHEN sets_title
        THEN coalesce(octet_length(convert_to(p_title, 'UTF8')), 0)
          - coalesce(octet_length(convert_to(old.title, 'UTF8')), 0) ELSE 0 END
    + CASE WHEN p_sets_metadata
        THEN 3 * (coalesce(octet_length(p_metadata), 0) - coalesce(octet_length(old.metadata), 0)) ELSE 0 END
  WHERE key = p_thread;
END
$$;
UPDATE aguila.threads t SET bytes = t.bytes + 2 * octet_length(d.metadata)
FROM aguila.details d WHERE d.thread = t.key AND d.metadata IS NOT NULL;
