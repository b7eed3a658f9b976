package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const anyRun = "wrun_01JD5A8R8D0000000000000000"

// apiCommands are the command lines of the golden files: every API command and every flag.
var apiCommands = []string{
	"runs start order --deployment shop --input {\"items\":[1]} --attr customer=7 --attr a=b;c=d,e --key k --on-conflict join",
	"runs start order --idempotency-key i --delay 30s --timeout 24h --parent " + anyRun,
	"runs start order --start-at 2026-11-21T02:00:00Z --input - --wait",
	"runs start order --wait-timeout 5m",
	"runs list --limit 2",
	"runs list --workflow order --status failed --key k --parent " + anyRun + " --attr customer=7 --order asc --limit 1",
	"runs list --created-after 2h --created-before 2026-11-21T02:00:00Z --cursor 1:2 --limit 1",
	"runs list --need stuck --limit 1",
	"runs list --order-by need --limit 2",
	"runs count --need retrying",
	"runs show " + anyRun,
	"runs why " + anyRun,
	"runs events " + anyRun,
	"runs events " + anyRun + " --payloads --after 3 --type run_created,step_failed --about charge --from 2h --to 1h --order desc",
	"runs timeline " + anyRun,
	"runs timeline " + anyRun + " --name charge --status failed,running --order desc --limit 2",
	"runs timeline " + anyRun + " --names --cursor 41",
	"runs payload " + anyRun + " 7",
	"runs export " + anyRun,
	"runs wait " + anyRun + " --timeout 1m",
	"runs cancel " + anyRun + " --reason twice",
	"runs cancel --workflow order --status running --key k --parent " + anyRun + " --attr a=b --created-after 2h --created-before 1h --dry-run --limit 5 --reason twice",
	"runs rerun " + anyRun + " --deployment latest --idempotency-key i",
	"runs rerun --error-code card_declined --workflow order --status failed --deployment latest --idempotency-key b --limit 5",
	"runs rerun --workflow order --dry-run",
	"runs fork " + anyRun + " --at 3 --idempotency-key i",
	"runs fork --workflow order --dry-run",
	"runs list --error-code card_declined --limit 1",
	"failures --window 1h",
	"workflows --limit 5",
	"search placeOrder",
	"runs children " + anyRun + " --limit 1",
	"runs attributes " + anyRun,
	"runs attributes " + anyRun + " customer=7 a=b=c --remove trial",
	"runs start order --inbox notes --inbox a:b",
	"runs store " + anyRun,
	"runs store " + anyRun + " balance",
	"runs send " + anyRun + " notes --payload {\"text\":\"ring\"} --id note-1",
	"runs send " + anyRun + " notes --payload {\"text\":\"ring\"} --id note-1 --wait --wait-timeout 1m",
	"attention",
	"stats now",
	"stats runs --from 2h --to 1h --step 1m --by workflow --workflow order",
	"stats steps --from 2h",
	"stats failures --workflow order",
	"steps list " + anyRun + " --order desc",
	"steps show " + anyRun + " charge",
	"hooks list",
	"hooks list --run " + anyRun,
	"hooks show " + anyRun + " approval",
	"hooks resume order-7 --payload {\"approved\":true} --resume-id click-1",
	"hooks resume --run " + anyRun + " approval",
	"hooks approvals --for anna --for role:finance --run " + anyRun + " --workflow order",
	"hooks approve " + anyRun + " agree --as anna --field limit=100 --comment fine",
	"hooks approve " + anyRun + " agree --form {\"limit\":100}",
	"hooks approve " + anyRun + " agree --form {} --field limit=100",
	"hooks reject " + anyRun + " agree --as bob --role finance",
	"waits list " + anyRun,
	"streams list " + anyRun,
	"signals send order.paid --data {\"order\":7} --id payment-7 --keep-for 1h",
	"signals list --name order.paid",
	"events list --payloads --run " + anyRun,
	"deployments add shop https://shop.example.com/workflows --workflow order --workflow a,b",
	"deployments add mail https://mail.example.com/steps --steps-only",
	"deployments list",
	"deployments show shop",
	"deployments remove shop",
	"deployments pause shop --note moving",
	"runs pause wrun_1",
	"workflows pause order",
	"workflows resume order",
	"pauses",
	"secrets set stripe",
	"secrets list",
	"secrets remove stripe",
	"messages list --state all --run " + anyRun,
	"messages show msg_01JD5A8R8D0000000000000000",
	"messages retry msg_01JD5A8R8D0000000000000000 msg_2",
	"messages discard msg_01JD5A8R8D0000000000000000",
	"keys create ci --role write --project shop --expires-at 2027-01-01T00:00:00Z",
	"keys create orders --role worker --deployments orders@*",
	"keys list --order asc --limit 1",
	"keys show key_1 --project shop",
	"keys revoke key_1 key_2",
	"whoami",
	"projects list",
	"projects create shop",
	"projects limit shop --daily-starts 10000 --storage-bytes none",
	"audit list --project shop --limit 1",
	"audit list --actor key_1",
	"ui --print",
	"sessions list",
	"sessions end 0dc526d8c4fa04084f4b2a6433f4cd14664b93df9fb8a9e00b77ba890b83704d",
	"servers",
	"signing-keys list",
	"signing-keys create",
	"signing-keys remove skey_1",
}

// TestOutput compares the output of commands for the examples in openapi.yaml with golden files: at a terminal, in a
// pipe, and as JSON.
func TestOutput(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name     string
		args     []string
		relative bool
	}{{"terminal", nil, true}, {"pipe", nil, false}, {"json", []string{"--json"}, false}} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			server := newExampleServer(t)
			var all strings.Builder
			stdin := strings.NewReader("")
			c := newCommandLine(t, remote.Console{
				Stdin: stdin, RelativeTimes: mode.relative,
				Now: func() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) },
			})
			for _, line := range apiCommands {
				stdin.Reset("\"whsec_new\"\n")
				err := c.execute(t.Context(), append(append(strings.Fields(line), "--url", server.URL), mode.args...)...)
				fmt.Fprintf(&all, "$ stepwell %s\n%s", line, &c.stdout)
				for note := range strings.Lines(c.stderr.String()) {
					fmt.Fprintf(&all, "# %s", note)
				}
				if err != nil {
					fmt.Fprintf(&all, "! %d: %v\n", remote.ExitCode(err), err)
				}
				all.WriteString("\n")
			}
			golden(t, filepath.Join("testdata", "output", mode.name+".txt"), strings.ReplaceAll(all.String(), server.URL, "http://server"))
		})
	}
}

// golden compares got with a golden file, or rewrites the file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(mustRead(t, name), got); diff != "" {
		t.Errorf("%s (-want +got; rewrite it with -update):\n%s", name, diff)
	}
}
