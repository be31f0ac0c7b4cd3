-- oldest: 1
-- Attempts that were let go before anybody counted what their jobs have stored.

alter table attempts add column to_count integer not null default 0;

create index attempts_to_count on attempts (ended_at) where to_count = 1;
