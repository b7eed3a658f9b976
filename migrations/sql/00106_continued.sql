-- A run that gets long ends, and another one goes on with its work: which one goes on, and from which it went on.

-- +goose Up
ALTER TABLE runs ADD COLUMN continued_from text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN continued_as text COLLATE "C" NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE runs DROP COLUMN continued_from;
ALTER TABLE runs DROP COLUMN continued_as;
