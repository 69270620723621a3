from kdump.kernel.estimate import Estimate as Estimate
from kdump.kernel.scanner import ByteReader as ByteReader
