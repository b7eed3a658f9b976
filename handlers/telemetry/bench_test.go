package telemetry

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// BenchmarkAppend measures the overhead of observing an append, without any round trip.
func BenchmarkAppend(b *testing.B) {
	for name, sampler := range map[string]string{"metrics": "", "unsampled": "always_off", "sampled": "always_on"} {
		b.Run(name, func(b *testing.B) {
			o := newTelemetry(func(o *Options) { o.Now = time.Now })
			if sampler != "" {
				s, err := ParseSampler(sampler, "")
				if err != nil {
					b.Fatal(err)
				}
				o.traces = NewTraces(s) // without an exporter
			}
			const id = entities.RunID("wrun_01JD5A8R8D0000000000000001")
			requests := []eventlog.Request{{Type: entities.EventStepCompleted}}
			events := []entities.Event{{RunID: id, Type: entities.EventStepCompleted}}
			b.ReportAllocs()
			for b.Loop() {
				_, done := o.Append(b.Context(), id, requests)
				done(eventlog.Appended{Events: events, Run: &entities.Run{}})
			}
		})
	}
}
