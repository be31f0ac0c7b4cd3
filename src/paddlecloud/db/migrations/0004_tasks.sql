-- oldest: 1
-- Pieces of training data that the trainers of a job take in turns, pass by pass.

create table task_sets (
    job_id text not null references jobs (id) on delete cascade,
    name text not null,
    digest text not null,
    passes integer not null,
    failure_max integer not null,
    current_pass integer not null,
    created_at bigint not null,
    primary key (job_id, name)
);

create table tasks (
    job_id text not null,
    name text not null,
    number integer not null,
    content text not null,
    -- Of the current pass: todo, leased, done or given_up.
    state text not null,
    tries integer not null,
    fence bigint not null,
    holder text,
    lease_until bigint,
    finished integer not null,
    primary key (job_id, name, number),
    foreign key (job_id, name) references task_sets (job_id, name) on delete cascade
);

create index tasks_by_state on tasks (job_id, name, state, number);
create index tasks_leased on tasks (lease_until) where state = 'leased';
