package entities

import (
	"errors"
	"fmt"
)

// Versions of the Workflow SDK's wire protocol, which it calls spec versions, at which the server's behaviour changes
// (protocol §8). Rules ask for the version of the run, never for that of an event: an SDK stamps its own version on the
// events of every run, whatever version that has.
const (
	// SpecDriven is the version of runs that the server drives: the first one in which readers of the wire protocol
	// treat payloads as opaque. Clients that send no version speak it.
	SpecDriven = 2
	// SpecCBOR is the first version whose clients read CBOR messages.
	SpecCBOR = 3
	// SpecReplays is the last version whose clients only replay the workflow when their run is woken, and execute each
	// step in a call of its own.
	SpecReplays = 3
	// SpecInline is the first version whose clients execute steps within the call of the run's function, without a
	// message (protocol §5.3).
	SpecInline = 5
	// specSlots is the first version in which event IDs are positions, and in which no attempt of a step begins after
	// the end of its run (protocol §3.3).
	specSlots = 6
	// SpecTakeover is the first version whose runs know that another run may take over the token of a hook.
	SpecTakeover = 8
	// SpecFence is the first version with one orchestrator for each run: its writes carry a fence, and step and wait
	// events are appended as they come.
	SpecFence = 9

	specOldest, specNewest = SpecDriven, SpecTakeover
)

// SDKLine is a line of releases of the Workflow SDK whose apps Stepwell runs.
type SDKLine struct {
	// Name is what documents call the line, and Releases are its versions of the npm package workflow.
	Name, Releases string
	// Oldest and Mints are the versions that its apps give their runs: Mints, unless a setting of the SDK says less.
	Oldest, Mints int
}

// SDKLines are the lines, the oldest first. The table is the one of the package @stepwell/world and of
// docs/workflow-sdk.md too.
var SDKLines = []SDKLine{
	{Name: "4", Releases: "4.8", Oldest: 3, Mints: 3},
	{Name: "5 beta.35", Releases: "5.0.0-beta.35", Oldest: 5, Mints: 5},
	{Name: "5 beta.55", Releases: "5.0.0-beta.55", Oldest: 6, Mints: 7},
	{Name: "5", Releases: "5.0 to 5.2", Oldest: 6, Mints: 8},
}

// NewestSpec returns the newest version that a server serves, which may serve runs with a fence.
func NewestSpec(fence bool) int {
	if fence {
		return SpecFence
	}
	return specNewest
}

// ErrSpecVersion refuses an event of an SDK whose version the server does not know.
var ErrSpecVersion = errors.New("unsupported spec version")

// CheckSpecVersion fails with [ErrSpecVersion] unless the server knows the version.
func CheckSpecVersion(v int) error {
	newest := SDKLines[len(SDKLines)-1]
	remedy := fmt.Sprintf("update the Stepwell server, or install workflow %s in the app", newest.Releases)
	switch {
	case v < specOldest:
		remedy = fmt.Sprintf("install workflow %s or newer in the app", SDKLines[0].Releases)
	case v <= specNewest:
		return nil
	}
	return fmt.Errorf("%w %d: the server knows %d to %d: %s", ErrSpecVersion, v, specOldest, specNewest, remedy)
}
