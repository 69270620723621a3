from kdump.kernel.scanner import ByteReader as ByteReader
