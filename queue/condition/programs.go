package condition

import (
	"sync"

	"cel.dev/cel-go/cel"
	"github.com/hashicorp/golang-lru/v2/simplelru"
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

// programs caches compiled conditions: the most recently used ones within the limits. It is safe for concurrent use.
type programs struct {
	mu     sync.Mutex
	lru    *simplelru.LRU[string, cel.Program]
	memory int
}

func newPrograms() *programs {
	p := &programs{}
	var err error
	p.lru, err = simplelru.NewLRU(maxPrograms, func(text string, _ cel.Program) { p.memory -= programMemory(text) })
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return p
}

// programMemory estimates the memory of a condition's program.
func programMemory(text string) int { return programOverhead + memoryPerByte*len(text) }

func (p *programs) get(text string) (cel.Program, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lru.Get(text)
}

// add adds a program, and removes the least recently used ones that exceed the memory.
func (p *programs) add(text string, program cel.Program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lru.Contains(text) {
		return
	}
	p.lru.Add(text, program)
	for p.memory += programMemory(text); p.memory > maxProgramMemory; {
		p.lru.RemoveOldest()
	}
}
