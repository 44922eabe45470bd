-- A column of operations: the segments that an erase walks over.

alter table tuskline.operation add column segments oid[];
comment on column tuskline.operation.segments is
  'Tables of the segments that were attached when the walk of an erase began, and 0 if one was being '
  'retired. Null: no erase.';
