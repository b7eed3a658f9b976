package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

// TestCommandsWithoutServer uses those for documents of flows.
func TestCommandsWithoutServer(t *testing.T) {
	t.Parallel()
	c := &shell{stdin: strings.NewReader("")}
	c.commandLine = newCommandLine(t, remote.Console{Stdin: c.stdin, Now: time.Now})
	c.try(t, []commandTest{
		{`flows check testdata/flow.yaml`, `testdata/flow.yaml is a flow: greet, 1 step\n`, 0, ""},
		{`flows check testdata/faulty.yaml`, ``, remote.ExitUsage, "steps.a.cal: there is no field"},
		{`flows test testdata/flow_test.yaml`, `(?s)ok   testdata/flow_test.yaml: greets\nFAIL testdata/flow_test.yaml: fails\n.*want.*`, remote.ExitError, "1 of 2 tests failed"},
		{`flows diagram testdata/flow.yaml`, `flowchart TD\n(?s).*`, 0, ""},
		{`flows schema`, `(?s)\{\n  "\$schema": "https://json-schema.org/draft/2020-12/schema",.*`, 0, ""},
	})
}

// TestCommandsForWhatStartsRuns uses flows, collections, schedules and triggers.
func TestCommandsForWhatStartsRuns(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	c.try(t, []commandTest{
		{`flows put testdata/flow.yaml`, `testdata/flow.yaml is version 1 of greet\n`, 0, ""},
		{`flows put testdata/flow.yaml --dry-run`, `testdata/flow.yaml would be version 1 of greet\n`, 0, ""},
		{`flows put testdata/faulty.yaml`, ``, remote.ExitUsage, "the document has 2 faults:\n3:20: steps.a.cal: there is no field"},
		{`flows list`, `NAME +VERSION +DEPLOYMENT +CREATED\ngreet +1 +greet@1 +\S+Z\n`, 0, ""},
		{`flows show greet`, `flow: greet\n(?s).*`, 0, ""},
		{`flows alias greet prod 1`, `greet@prod is version 1\n`, 0, ""},
		{`flows versions greet`, `VERSION +ALIASES +CREATED +RETIRED\n1 +prod +\S+Z\n`, 0, ""},
		{`flows retire greet 1`, ``, remote.ExitConflict, "the alias prod"},
		{`deployments show greet@1`, `(?s).*url +flow greet, version 1\n.*`, 0, ""},
		{`flows check`, ``, remote.ExitUsage, "want a document, or --since"},
		{`flows check --since 1h`, `0 runs would decide what was decided\n`, 0, ""},
		{`catalogs put testdata/catalog.yaml --dry-run`, `testdata/catalog.yaml would be version 1 of shipping\n`, 0, ""},
		{`catalogs put testdata/catalog.yaml`, `testdata/catalog.yaml is version 1 of shipping\n`, 0, ""},
		{`catalogs put testdata/faulty.yaml`, ``, remote.ExitUsage, `the document has 4 faults`},
		{`catalogs list`, `NAME +VERSION +CREATED\nshipping +1 +\S+Z\n`, 0, ""},
		{`catalogs show shipping`, `catalog: shipping\n(?s).*`, 0, ""},
		{`catalogs show nothing`, ``, remote.ExitNotFound, "stepwell catalogs list"},
		{`catalogs preview shipping --want label --have order`, `1 pack, order from have\n2 book, parcels from pack\n- invoice: the goals are reached without it\n`, 0, ""},
		{`catalogs preview shipping --want label --have order --mermaid`, `flowchart TD\n(?s).*`, 0, ""},
		{`catalogs preview shipping --want label`, `(?s).*missing order: label needs book needs parcels needs pack needs order\n`, remote.ExitError, "label cannot be had"},
		{`runs start --catalog shipping --want label --have parcels=[1]`, `wrun_\w+\n`, 0, ""},
		{`runs start --catalog shipping --want label`, ``, remote.ExitUsage, "what is missing is order"},
		{`runs start`, ``, remote.ExitUsage, "or --catalog"},
		{`flows show nobody`, ``, remote.ExitNotFound, "stepwell flows list"},
		{`runs start report --debounce quiet=1h --batch size=2,wait=1h`, ``, remote.ExitUsage, "can't be used together"},
		{`runs start report --batch size=two,wait=1h`, ``, remote.ExitUsage, "size"},
		{`runs start report -d app --batch key=a,size=3,wait=1h -i 1`, oneID, 0, ""},
		{`runs show RUN`, `run .*status +collecting\n.*`, remote.ExitNotFound, "has not started: it collects starts until"},
		{`runs wait RUN --timeout 50ms`, `run .*status +collecting\n.*`, remote.ExitTimeout, "still collecting"},
		{`why RUN`, ``, remote.ExitNotFound, "stepwell collections show RUN"},
		{`collections list`, `RUN +WORKFLOW +RULE +KEY +STARTS +DUE\nwrun_\w+ +report +batch of 3, wait 1h, bytes 8388608 +a +1 +\S+Z\n`, 0, ""},
		{`collections show RUN`, `run +wrun_\w+\n.*starts +1\n.*why +it collects starts until \S+Z, 1 so far: wait, or flush it\n`, 0, ""},
		{`collections flush RUN`, oneID, 0, ""},
		{`collections drop RUN`, ``, remote.ExitNotFound, "stepwell collections list"},
		{`runs start report -d app --debounce quiet=1h --debounce keep=all`, oneID, 0, ""},
		{`collections drop RUN`, ``, 0, ""},
		{`schedules put nightly report --cron 30`, ``, remote.ExitUsage, "has 1 fields"},
		{`schedules put nightly report --every 1h --deployment app --attr a=b --input 1`, `name +nightly\n.*state +active\nnext +\S+Z\n.*`, 0, ""},
		{`schedules list`, `NAME +WHEN +WORKFLOW +STATE +NEXT +LAST RUN\nnightly +every 1h +report +active .*\n`, 0, ""},
		{`schedules trigger nightly`, `wrun_\w+\n`, 0, ""},
		{`schedules ticks nightly`, `TICK +KIND +DECISION +COUNT +RUN +REASON\n\S+Z +trigger +started +1 +wrun_\w+ *\n`, 0, ""},
		{`schedules backfill nightly`, ``, remote.ExitUsage, "give --from and --to"},
		{`schedules backfill nightly --from 2026-01-01T00:00:00Z --to 2026-01-01T01:00:00Z`, `name +nightly\n.*`, 0, ""},
		{`schedules backfill nightly --end`, `name +nightly\n.*`, 0, ""},
		{`schedules pause nightly --note moving`, `name +nightly\n.*state +paused\n.*note +moving\n`, 0, ""},
		{`schedules show nightly`, `name +nightly\n.*why +it is paused \(moving\): resume it\n.*`, 0, ""},
		{`schedules resume nightly`, `name +nightly\n.*state +active\n.*`, 0, ""},
		{`schedules remove nightly`, ``, 0, ""},
		{`schedules show nightly`, ``, remote.ExitNotFound, "stepwell schedules list"},
		{`triggers put paid report`, ``, remote.ExitUsage, "--signal"},
		{`triggers put paid report --signal order.paid --condition nothing`, ``, remote.ExitUsage, "undeclared reference"},
		{`triggers put paid report --signal order.paid --condition data.ok --deployment app --attr a=b --input 1`, `name +paid\non +signal order.paid\nstarts +report\nstate +active\n.*`, 0, ""},
		{`triggers put pushed report --webhook --deployment app`, `name +pushed\n.*path +/hooks/trg_\w+\n.*`, 0, ""},
		{`triggers put after report --run-ended order --status failed --deployment app`, `name +after\n.*state +active\n.*`, 0, ""},
		{`triggers list`, `NAME +ON +STARTS +STATE\nafter +end of order: failed +report +active\npaid +signal order.paid +report +active\npushed +webhook +report +active\n`, 0, ""},
		{`triggers pause paid --note moving`, `name +paid\n.*state +paused\n.*`, 0, ""},
		{`triggers show paid`, `name +paid\non +signal order.paid\nstarts +report\nstate +paused\ncondition +data.ok\n.*note +moving\n.*`, 0, ""},
		{`triggers resume paid`, `name +paid\n.*state +active\n.*`, 0, ""},
		{`triggers history paid`, `DECIDED +EVENT +DECISION +RUN +REASON\n`, 0, ""},
		{`triggers delete paid after`, ``, 0, ""},
		{`triggers show paid`, ``, remote.ExitNotFound, "stepwell triggers list"},
		{`limits set stripe`, ``, remote.ExitUsage, "bounds nothing"},
		{`limits set stripe --per-key 5 --rate 100/1m --burst 10 --fair`, `set limit stripe\n`, 0, ""},
		{`limits set stripe --total 200 --paused --no-fair`, `set limit stripe\n`, 0, ""},
		{`limits set stripe --rate often`, ``, remote.ExitUsage, "such as 100/1m"},
		{`limits list`, `NAME +STATE +PER KEY +TOTAL +RATE +HELD +WAITING +IF FULL\nstripe +paused +5 +200 +100/1m, 10 at once +0 +0 +wait\n`, 0, ""},
		{`limits set stripe --no-paused --rate 0 --on-full reject`, `set limit stripe\n`, 0, ""},
		{`limits show stripe`, `name +stripe\nstate +active\nper key +5\ntotal +200\n.*if full +reject\nfair +false\n.*`, 0, ""},
		{`limits keys stripe`, `KEY +HELD +WAITING +WAITING SINCE\n`, 0, ""},
		{`limits slots stripe customer-7`, `SLOT +RUN +STEP +SINCE +COST +TENANT\n`, 0, ""},
		{`limits slots stripe`, `SLOT +RUN +STEP +SINCE +COST +TENANT\n`, 0, `"stepwell limits keys stripe" lists the keys to give`},
		{`policies set report --limit stripe=attributes.customer --cost stripe=2 --priority=-5m`, `set the policy of report\n`, 0, ""},
		{`policies list`, `WORKFLOW +LIMITS +PRIORITY +UPDATED\nreport +stripe=attributes.customer x2 +-5m +\S+Z\n`, 0, ""},
		{`limits remove stripe`, ``, remote.ExitConflict, "stepwell policies list"},
		{`policies remove report`, ``, 0, ""},
		{`limits remove stripe`, ``, 0, ""},
		{`limits show stripe`, ``, remote.ExitNotFound, "stepwell limits list"},
	})
}
