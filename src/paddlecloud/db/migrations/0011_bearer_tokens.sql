-- oldest: 1
-- Tokens of programs that cannot sign requests, such as Prometheus. They have no user.

create table bearer_tokens (
    -- sha256 of the token, which is stored nowhere.
    digest text primary key,
    ak text not null unique,
    scope text not null,
    name text not null,
    created_at bigint not null,
    last_used_at bigint,
    revoked_at bigint
);
