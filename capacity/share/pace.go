package share

import "time"

// Pace is how slowly a sender may send. The sender has credit: the time for which the receiver still waits. Waiting
// uses it up, and each byte that arrives adds to it. The credit is limited, so that a sender cannot send much at once
// and then make the receiver wait for hours.
type Pace struct {
	// Credit is the time that the receiver waits for the next bytes. Its first value is the time for the first ones.
	Credit time.Duration
	// Most limits the credit, and with it the longest pause of a sender.
	Most time.Duration
	// Rate is the number of bytes that add a second of credit.
	Rate int64
}

// Received records that the receiver waited for some time and got some bytes. If no credit is left, the sender is too
// slow.
func (p *Pace) Received(after time.Duration, bytes int) {
	p.Credit = min(p.Most, p.Credit-after+time.Duration(bytes)*time.Second/time.Duration(p.Rate))
}
