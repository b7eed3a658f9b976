package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// newRole executes deploy/postgres/role.sql in an empty database, under another name because roles are the cluster's,
// and returns the role's URL of the database.
func newRole(t *testing.T) string {
	t.Helper()
	admin := testdb.Empty(t)
	conn, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	role := fmt.Sprintf("stepwell_role_%d", os.Getpid())
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := conn.Exec(ctx, `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
		if closeErr := conn.Close(ctx); err != nil || closeErr != nil {
			t.Errorf("drop the role: %v, %v", err, closeErr)
		}
	})
	script := strings.NewReplacer(
		`\getenv password ROLE_PASSWORD`, "", ":'password'", "'secret'",
		"ROLE stepwell", "ROLE "+role, "AUTHORIZATION stepwell", "AUTHORIZATION "+role,
	).Replace(mustRead(t, deployFolder+"/postgres/role.sql"))
	if _, err := conn.Exec(t.Context(), script); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

// TestLeastPrivilegedRole: a server migrates its database and drives a run with the role of the recipes, which can do
// nothing outside its schema.
func TestLeastPrivilegedRole(t *testing.T) {
	t.Parallel()
	dsn := newRole(t)
	s := newServer(t, dsn, server.RoleAll)
	mustStart(t, s)
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"commands": [{"type": "complete", "output": "done"}]}`)
	}))
	t.Cleanup(function.Close)
	base := "http://" + s.Addr()
	header := []string{"Content-Type", "application/json"}
	servertest.Request(t, http.MethodPut, base+"/v1/deployments/f", `{"url": "`+function.URL+`"}`, header...)
	started := servertest.Request(t, http.MethodPost, base+"/v1/runs", `{"workflow": "w", "deployment": "f"}`, header...)
	body, err := io.ReadAll(started.Body)
	if err != nil || started.StatusCode/100 != 2 {
		t.Fatalf("start: %s %s %v", started.Status, body, err)
	}
	_, id, _ := strings.Cut(string(body), `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	ended, err := io.ReadAll(servertest.Request(t, http.MethodGet, base+"/v1/runs/"+id+"/wait?timeout=20s", "").Body)
	if err != nil || !strings.Contains(string(ended), `"status":"completed"`) {
		t.Errorf("the run: %s, %v", ended, err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, forbidden := range []string{
		`CREATE SCHEMA other`, `CREATE TABLE public.t ()`, `CREATE ROLE other_role`, `CREATE DATABASE other_database`,
		`SELECT pg_read_file('postgresql.conf')`, `ALTER SYSTEM SET fsync = off`,
	} {
		if _, err := conn.Exec(t.Context(), forbidden); err == nil {
			t.Errorf("%s is allowed", forbidden)
		}
	}
}
