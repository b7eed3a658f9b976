package condition

import (
	"cel.dev/cel-go/cel"

	"github.com/stepwell-dev/stepwell/entities/cache"
)

const (
	// maxPrograms limits the number of cached programs, and maxProgramMemory their estimated memory in bytes.
	maxPrograms      = 1000
	maxProgramMemory = 32 << 20
	// programOverhead and memoryPerByte estimate the memory of a program from the length of its condition. Measured:
	// see TestProgramMemoryIsEstimated.
	programOverhead = 16 << 10
	memoryPerByte   = 128
)

// ProgramMemory estimates the memory of a condition's program.
func ProgramMemory(text string) int { return programOverhead + memoryPerByte*len(text) }

// newPrograms returns a cache of compiled conditions.
func newPrograms() *cache.Cache[string, cel.Program] {
	return cache.New(maxPrograms, maxProgramMemory, func(text string, _ cel.Program) int { return ProgramMemory(text) })
}
