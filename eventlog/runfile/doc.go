// Package runfile is the format of the files of exported and archived runs, and reads the logs of archived runs from
// them. It knows nothing of folders and buckets.
package runfile
