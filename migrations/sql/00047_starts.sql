-- +goose Up
-- What the start of a trigger says besides: limits, priority, delay, idempotency key, debounce and batch.
ALTER TABLE triggers ADD COLUMN options jsonb NOT NULL DEFAULT '{}';
ALTER TABLE trigger_events DROP CONSTRAINT trigger_events_decision_check;
ALTER TABLE trigger_events ADD CONSTRAINT trigger_events_decision_check
    CHECK (decision IN ('started', 'joined', 'collected', 'skipped', 'refused', 'retrying')) NOT VALID;

-- A schedule ticks from from_at, if it is set, to until_at.
ALTER TABLE schedules ADD COLUMN from_at timestamptz;
ALTER TABLE schedules ADD COLUMN until_at timestamptz;
-- The ticks that wait behind waiting_at, in their order.
ALTER TABLE schedules ADD COLUMN waiting_more timestamptz[] NOT NULL DEFAULT '{}';
ALTER TABLE schedules DROP CONSTRAINT schedules_overlap_check;
ALTER TABLE schedules ADD CONSTRAINT schedules_overlap_check
    CHECK (overlap IN ('skip', 'wait', 'waitAll', 'cancel', 'allow')) NOT VALID;

-- +goose Down
ALTER TABLE schedules DROP CONSTRAINT schedules_overlap_check;
UPDATE schedules SET overlap = 'wait' WHERE overlap = 'waitAll';
ALTER TABLE schedules ADD CONSTRAINT schedules_overlap_check
    CHECK (overlap IN ('skip', 'wait', 'cancel', 'allow')) NOT VALID;
ALTER TABLE schedules DROP COLUMN waiting_more, DROP COLUMN until_at, DROP COLUMN from_at;
ALTER TABLE trigger_events DROP CONSTRAINT trigger_events_decision_check;
UPDATE trigger_events SET decision = 'joined' WHERE decision = 'collected';
ALTER TABLE trigger_events ADD CONSTRAINT trigger_events_decision_check
    CHECK (decision IN ('started', 'joined', 'skipped', 'refused', 'retrying')) NOT VALID;
ALTER TABLE triggers DROP COLUMN options;
