-- Checks a cron expression in SQL, exactly as the servers read it.
--
-- Servers calculate the ticks (croner, src/periodic/cron.rs). A cron that they cannot read would
-- never fire. So the dialect here is exactly theirs, and a test checks 500 expressions with both.

-- Checks the part of a cron field between two commas.
--
-- croner ignores the text after a W, and the text between a # and a final L.
create or replace function tuskline_core.is_cron_part(
  p_part text, p_least integer, p_max integer, p_marks text)
returns boolean language plpgsql immutable as $$
declare
  v_base   text := split_part(p_part, '#', 1);
  v_is_nth boolean := right(p_part, 1) = 'L' or strpos(p_part, '#') = 0
                      or substr(p_part, strpos(p_part, '#') + 1) ~ '^0*[1-5]$';
  v_range  text[];
  v_step   integer := 1;
begin
  if p_part = 'L' then return true; end if;
  if strpos(p_part, '/') > 0 then
    v_range := regexp_match(v_base,
      '^(?:[*]|0*([0-9]{1,5})-0*([0-9]{1,5}))/0*([0-9]{1,5})$');
    v_step := v_range[3];
    v_range := array[coalesce(v_range[1], p_least::text), coalesce(v_range[2], p_max::text)];
  elsif strpos(p_part, '-') > 0 then
    v_range := regexp_match(v_base, '^0*([0-9]{1,5})-0*([0-9]{1,5})$');
  else
    if strpos(p_part, 'W') > 0 then
      v_base := split_part(p_part, 'W', 1);
      if v_base = 'L' then return true; end if;
    elsif p_marks = '#L' and strpos(p_part, '#') = 0 and right(p_part, 1) = 'L' then
      v_base := split_part(p_part, 'L', 1);
    end if;
    v_range := regexp_match(v_base, '^0*([0-9]{1,5})$');
    v_range := array[v_range[1], v_range[1]];
  end if;
  return coalesce(v_is_nth and v_range[1]::integer between p_least and v_range[2]::integer
    and v_range[2]::integer <= p_max and v_step between 1 and 65535 - v_range[1]::integer, false);
end $$;
comment on function tuskline_core.is_cron_part(text, integer, integer, text) is
  'Whether a part of a cron field is a value, a range or a step in these bounds.';

create or replace function tuskline_core.is_cron_field(
  p_text text, p_least integer, p_max integer, p_marks text)
returns boolean language sql immutable as $$
  select p_text = '*' or translate(p_text, '0123456789*/,-' || p_marks, '') = '' and coalesce((
    select bool_and(tuskline_core.is_cron_part(u.part, p_least, p_max, p_marks))
           and bool_or(u.part <> 'L' or p_marks = 'LW')
      from unnest(string_to_array(p_text, ',')) as u (part) where u.part <> ''), false)
$$;
comment on function tuskline_core.is_cron_field(text, integer, integer, text) is
  'Whether a field of a cron is valid in these bounds. '
  'p_marks: further characters of the field (#, L, W).';

create or replace function tuskline_core.spaced_cron(p_cron text) returns text
language sql immutable as $$
  select btrim(regexp_replace(p_cron, '[[:space:]]+', ' ', 'g'))
$$;
comment on function tuskline_core.spaced_cron(text) is
  'Returns a cron with one space between two fields, and none around them.';

-- Finds the first mistake in a cron.
--
-- croner replaces a name such as SUN by its number wherever it occurs, and so does this function.
create or replace function tuskline_core.cron_error(p_cron text) returns text
language plpgsql immutable as $$
declare
  v_cron   text := tuskline_core.spaced_cron(upper(p_cron collate "C"));
  v_names  text[] := '{SUN,MON,TUE,WED,THU,FRI,SAT,
                       JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}';
  v_values text[] := '{0,1,2,3,4,5,6,1,2,3,4,5,6,7,8,9,10,11,12}';
  v_fields text[];
begin
  if length(p_cron) > 200 then
    return format('at most 200 characters, got %s', length(p_cron));
  end if;
  if octet_length(p_cron) > length(p_cron) then
    return format('only ASCII characters, got %L', left(p_cron, 80));
  end if;
  v_cron := case v_cron when '@YEARLY' then '0 0 1 1 *' when '@ANNUALLY' then '0 0 1 1 *'
                        when '@MONTHLY' then '0 0 1 * *' when '@WEEKLY' then '0 0 * * 0'
                        when '@DAILY' then '0 0 * * *' when '@HOURLY' then '0 * * * *'
                        else replace(v_cron, '-SUN', '-7') end;
  for v_at in 1..cardinality(v_names) loop
    v_cron := replace(v_cron, v_names[v_at], v_values[v_at]);
  end loop;
  v_fields := string_to_array(v_cron, ' ');
  if coalesce(cardinality(v_fields), 0) not between 5 and 6 then
    return format('5 fields, or 6 with seconds, got %s',
      coalesce(quote_literal(left(p_cron, 80)), 'null'));
  end if;
  if cardinality(v_fields) = 5 then v_fields := array_prepend('0', v_fields); end if;
  v_fields[4] := replace(v_fields[4], '?', '*');
  v_fields[6] := regexp_replace(replace(v_fields[6], '?', '*'), '^[+]', '');
  return (select format('a %s of %s to %s, got %L', f.name, f.least, f.most, left(f.text, 80))
            from unnest(
                   v_fields,
                   '{second,minute,hour,"day of the month",month,"day of the week"}'::text[],
                   '{0,0,0,1,1,0}'::integer[], '{59,59,23,31,12,7}'::integer[],
                   '{"","","",LW,"","#L"}'::text[])
                 with ordinality as f (text, name, least, most, marks, no)
           where not tuskline_core.is_cron_field(f.text, f.least, f.most, f.marks)
           order by f.no limit 1);
end $$;
comment on function tuskline_core.cron_error(text) is
  'Returns what a cron must have, for example "a minute of 0 to 59, got ''99''". '
  'Null: servers can read the cron.';
