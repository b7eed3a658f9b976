package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// row is one measurement.
type row struct {
	Case    string  `json:"case"`              // the measured operation
	Variant string  `json:"variant,omitempty"` // the implementation or shape
	Clients int     `json:"clients,omitempty"` // concurrent clients
	Rate    float64 `json:"rate,omitempty"`    // per second, of an open loop
	Size    int     `json:"size,omitempty"`    // of the log or database
	Round   int     `json:"round,omitempty"`   // of A B A B, from 1 on
	About   string  `json:"about,omitempty"`   // version and settings of the variant

	Ops        int64   `json:"ops"`
	Errors     int64   `json:"errors,omitempty"`
	Error      string  `json:"error,omitempty"` // the first error
	Unfinished int64   `json:"unfinished,omitempty"`
	Seconds    float64 `json:"seconds"`

	Latency quantiles `json:"latency,omitzero"`

	// CPU time in seconds.
	ServerCPU   float64 `json:"serverCpu,omitempty"`
	PostgresCPU float64 `json:"postgresCpu,omitempty"`
	FunctionCPU float64 `json:"functionCpu,omitempty"`
	LoadCPU     float64 `json:"loadCpu,omitempty"`

	WAL        int64              `json:"walBytes,omitempty"`
	Statements int64              `json:"statements,omitempty"`
	Counts     map[string]float64 `json:"counts,omitempty"` // other values, specific to the case
}

func (r row) perSecond() float64 { return ratio(float64(r.Ops), r.Seconds) }

// per divides a total by the number of operations.
func (r row) per(total float64) float64 { return ratio(total, float64(r.Ops)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r row) with(s *sample) row {
	r.Ops, r.Errors, r.Unfinished, r.Seconds = s.Ops, s.Errors, s.Unfinished, s.Took.Seconds()
	r.Latency = s.Latency.quantiles()
	if s.first != nil {
		r.Error = s.first.Error()
	}
	return r
}

func (r row) using(u usage) row {
	r.ServerCPU, r.PostgresCPU = u.Server.Seconds(), u.Postgres.Seconds()
	r.FunctionCPU, r.LoadCPU = u.Function.Seconds(), u.Load.Seconds()
	r.WAL, r.Statements = u.WAL, u.Statements
	return r
}

// results are the results of one part, with everything needed to generate the report.
type results struct {
	Part        string        `json:"part"`
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"tookNanoseconds"`
	Environment environment   `json:"environment"`
	Rows        []row         `json:"rows"`
}

func resultsFile(folder, part string) string { return filepath.Join(folder, "results", part+".json") }

func saveResults(folder string, r results) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	name := resultsFile(folder, r.Part)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	if err := os.WriteFile(name, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	return nil
}

// loadResults reads the existing results of all parts, in order.
func loadResults(folder string) ([]results, error) {
	var all []results
	for _, name := range partNames() {
		data, err := os.ReadFile(resultsFile(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var r results
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}
