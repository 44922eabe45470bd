-- Reads a setting that is on or off. Refuses any other text: a typing error must show at once.
create or replace function tuskline_core.boolean_setting(p_name text) returns boolean
language plpgsql stable as $$
begin
  return current_setting(p_name)::boolean;
exception when invalid_text_representation then
  perform tuskline_core.refuse('TK009', format('invalid_setting: %s must be on or off, got %L',
    p_name, left(current_setting(p_name), 80)), format('set %s = on', p_name));
end $$;
comment on function tuskline_core.boolean_setting(text) is
  'Value of a setting that is on or off. Refuses (TK009) any other text.';

-- Tells whether the caller may prepare its transaction (PREPARE TRANSACTION, XA): the setting
-- tuskline.two_phase.
--
-- PostgreSQL refuses to prepare a transaction that has sent a notification. A prepared transaction
-- keeps its advisory locks. Therefore, with the setting on, no verb sends a notification or takes a
-- watch lock. The workers find the task at their safety poll, within a second.
-- An empty text counts as off: a session reads it after the end of a SET LOCAL.
create or replace function tuskline_core.is_two_phase() returns boolean language sql stable as $$
  select case coalesce(current_setting('tuskline.two_phase', true), '')
         when '' then false when 'off' then false when 'on' then true
         else tuskline_core.boolean_setting('tuskline.two_phase') end
$$;
comment on function tuskline_core.is_two_phase() is
  'Whether tuskline.two_phase is on: this transaction sends no notification and may be prepared.';

create or replace function tuskline_core.notify(p_channel text) returns void language sql as $$
  select pg_notify(p_channel, '') where not tuskline_core.is_two_phase()
$$;
comment on function tuskline_core.notify(text) is
  'Sends a notification without a payload, unless the transaction may be prepared (two_phase).';
