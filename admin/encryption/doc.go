// Package encryption encrypts the payloads of projects at rest.
//
// Each project that is encrypted has data keys: one that encrypts what is written, and earlier ones that only decrypt.
// They are rows, wrapped by a [MasterKey], which is not in the database. Package awskms has those of a key service.
// [Keys] is the [atrest.Codec] that a server installs into its pool.
//
// A payload is encrypted by XAES-256-GCM: from its data key and half of a random nonce of 24 bytes follows a key of
// AES-256-GCM for this payload alone. So one data key is good for 2^80 payloads, where AES-GCM with random nonces is
// for 2^32, which a busy project has in days. The place of the payload ([atrest.Place]) is authenticated with it: a
// ciphertext that somebody has moved or changed in the database is refused.
//
// What is stored is [atrest.Magic], [atrest.Sealed], a version (1), the ID of the key (16 bytes), the nonce (24), and
// the ciphertext with its tag (16): [Overhead] bytes more than the payload.
//
// A process has the wrapped keys in memory, and asks for changed ones every few seconds while it handles payloads. It
// has a bounded number of keys unwrapped. Payloads of a key that is destroyed stay as they are stored: nobody can read
// them.
package encryption
