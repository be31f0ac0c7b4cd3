-- oldest: 1
-- Secrets that users keep for their jobs.

create table secrets (
    owner text not null references users (id) on delete cascade,
    name text not null,
    -- The value, sealed with the server's key.
    sealed text not null,
    -- 1: it is text, which a variable can hold.
    is_text integer not null,
    created_at bigint not null,
    updated_at bigint not null,
    primary key (owner, name)
);
