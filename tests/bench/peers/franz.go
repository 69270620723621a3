// Every record of Kafka segments through franz-go's own fetch processing: CRC, decompression, records.
//
//	franz FILE...     prints one JSON line: {"batches": N, "records": N, "bytes": N}
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	bufferBytes = 1 << 20
	overhead    = 12 // offset and size, which a batch's size field does not count
)

type reader struct {
	decompressor            kgo.Decompressor
	batches, records, bytes int64
	touched                 int64
}

// whole returns the length of the whole batches at the start of data, how many they are, and the length of the next one.
func whole(data []byte) (end int, batches int64, next int) {
	for len(data)-end >= overhead {
		next = overhead + int(int32(binary.BigEndian.Uint32(data[end+8:])))
		if next > len(data)-end {
			break
		}
		end += next
		batches++
	}
	return end, batches, next
}

func (r *reader) process(batches []byte) error {
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = batches
	options := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Topic: "topic"}
	fetched, _ := kgo.ProcessFetchPartition(options, &partition, r.decompressor, nil)
	if fetched.Err != nil {
		return fetched.Err
	}
	for _, record := range fetched.Records {
		r.touched += int64(len(record.Key) + len(record.Value))
	}
	r.records += int64(len(fetched.Records))
	return nil
}

func (r *reader) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buffer := make([]byte, bufferBytes)
	for position := int64(0); ; {
		got, err := file.ReadAt(buffer, position)
		if err != nil && err != io.EOF {
			return err
		}
		if got == 0 {
			return nil
		}
		end, batches, next := whole(buffer[:got])
		if end == 0 {
			if err == io.EOF {
				return fmt.Errorf("%s: %d bytes after the last whole batch", path, got)
			}
			buffer = make([]byte, next)
			continue
		}
		if err := r.process(buffer[:end]); err != nil {
			return fmt.Errorf("%s at %d: %w", path, position, err)
		}
		r.batches += batches
		r.bytes += int64(end)
		position += int64(end)
	}
}

func main() {
	r := reader{decompressor: kgo.DefaultDecompressor()}
	for _, path := range os.Args[1:] {
		if err := r.read(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Printf("{\"batches\": %d, \"records\": %d, \"bytes\": %d}\n", r.batches, r.records, r.bytes)
}
