package remote

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

type auditCmd struct {
	List listAuditCmd `cmd:"" help:"List who did what, newest first."`
}

type listAuditCmd struct {
	projectFlag
	paging
}

// Run lists the audit log.
func (c listAuditCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("audit"), c.query(), c.paging, auditColumns)
}

type auditEntry struct {
	Actor, Address, Action, Subject string

	At     time.Time
	Detail json.RawMessage
}

var auditColumns = []column[auditEntry]{
	{"TIME", func(a auditEntry) any { return a.At }},
	{"ACTOR", func(a auditEntry) any { return a.Actor }},
	{"ADDRESS", func(a auditEntry) any { return a.Address }},
	{"ACTION", func(a auditEntry) any { return a.Action }},
	{"SUBJECT", func(a auditEntry) any { return a.Subject }},
	{"DETAIL", func(a auditEntry) any { return strings.TrimPrefix(string(a.Detail), "{}") }},
}
