-- +goose Up

ALTER TABLE messages
    -- Number of deliveries that were cut off because the app died. They count as deliveries, but not as failures of the
    -- app's code.
    ADD cut_off    integer NOT NULL DEFAULT 0,
    -- The last lease that a server which stopped left to the function. An extension by the function clears it.
    ADD left_lease text COLLATE "C" NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE messages DROP cut_off, DROP left_lease;
