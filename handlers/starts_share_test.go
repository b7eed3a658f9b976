package handlers

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestBusyProjectLeavesOthersRoomForStarts: what one project has under way does not keep another from its part.
func TestBusyProjectLeavesOthersRoomForStarts(t *testing.T) {
	t.Parallel()
	_, q, _ := newEchoOf(t, "")
	room := startRoom(q)
	most := startsPerProcessor * runtime.GOMAXPROCS(0)
	resume := q.Group().Pause()
	var busy sync.WaitGroup
	for range 2 * most {
		busy.Go(func() { _ = q.Group().Do(share.For(context.Background(), "a"), nothing{}) })
	}
	await(t, "the database is busy", func() bool { return q.Group().UnderWay() == 2*most })
	for _, tt := range []struct {
		project            string
		own, all, projects int
		want               int
	}{
		{project: "a", projects: 1, want: -most},
		{project: "b", projects: 2, want: most / 2},
		{project: "b", own: most / 2, all: most / 2, projects: 2, want: 0},
		{project: "b", all: 10 * most, projects: 4, want: most / 4},
	} {
		check.Equal(t, fmt.Sprintf("%+v: got room for", tt), room(tt.project, tt.own, tt.all, tt.projects), tt.want)
	}
	resume()
	busy.Wait()
}

// TestRoomForStarts: an idle database lets some start beside slow functions; a busy one, as many as leave few under way.
func TestRoomForStarts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		u        underWay
		projects int
		want     int
	}{
		{"nothing is under way", underWay{}, 1, 100},
		{"some is", underWay{all: 70, own: 70, starts: 10}, 1, 30},
		{"all that may be", underWay{all: 100, own: 100, busy: true}, 1, 0},
		{"more than may be", underWay{all: 130, own: 130, busy: true}, 1, -30},
		{"slow functions", underWay{all: 900, own: 900}, 1, idleStarts},
		{"slow functions, and starts", underWay{all: 900, own: 900, starts: idleStarts}, 1, 0},
		{"another project's", underWay{all: 900, own: 0, busy: true}, 2, 50},
		{"another project's, and its own part", underWay{all: 900, own: 50, busy: true}, 2, 0},
	} {
		check.Equal(t, tt.name, tt.u.room(100, tt.projects), tt.want)
	}
}

// TestProjectWithoutRoomHoldsUpNobody: starts of others are admitted although those of one project wait.
func TestProjectWithoutRoomHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.starts.room = func(project string, own, _, _ int) int { return map[string]int{"b": 2, "c": 1}[project] - own }
		for _, name := range []string{"a1", "a2", "b1", "b2", "b3", "c1", "c2"} {
			l.ask(t.Context(), name[:1], "", name)
		}
		l.want(t, "b has room for two, c for one", "b1", "b2", "c1")
		l.served("b")
		l.served("c")
		time.Sleep(startTick)
		synctest.Wait()
		l.want(t, "one of each was served", "b1", "b2", "b3", "c1", "c2")
		l.stop()
	})
}

// TestSlowBodiesHoldNoSlotsForStarts: a start takes its slot when its body is there.
func TestSlowBodiesHoldNoSlotsForStarts(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 10, 1<<20)
	s.admission.starts = newStarts(t.Context(), func(_ string, _, all, _ int) int { return 1 - all }, time.Now, nil)
	for _, length := range []int64{smallBody + 1, -1} {
		body, answer := s.begin(t, http.MethodPost, "/v4/runs/r/events/run_created", length)
		check.Value(body.Write([]byte("x")))(t)
		await(t, "the body arrives", func() bool { return s.admission.arriving.Held() == 1 })
		wantCount(t, s.do(t, http.MethodPost, "/v4/runs/other/events/run_created", 10), 10)
		_ = body.Close()
		_ = (<-answer).Body.Close()
		await(t, "the sender has gone", func() bool { return s.admission.arriving.Held() == 0 })
	}
}
