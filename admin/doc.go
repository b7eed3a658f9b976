// Package admin holds what operators administer, with the SQL of its tables: projects, API keys, secrets of webhooks,
// signing keys, retention settings, and the audit of changes to them. None of it is part of a run's log.
//
// An administrative change and its [Action] in the audit are written in one transaction. Hence [Secrets],
// [SigningKeys] and [PutRetention] begin transactions themselves, while the writes of the other tables
// only queue statements on a batch, to which the caller adds [InsertAction].
//
// Secrets never appear in logs, errors or JSON: the types [SecretValue] and [SigningSecret] print as "[secret]", and
// the text of an API key is stored only as a hash.
package admin
