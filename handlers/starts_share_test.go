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
