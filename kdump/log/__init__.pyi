from kdump.log.batch_location import OffsetAndTimestamp as OffsetAndTimestamp
from kdump.log.damage import DamagedRange as DamagedRange
from kdump.log.fetch_data_info import FetchDataInfo as FetchDataInfo
from kdump.log.log_snapshot import SegmentDescription as SegmentDescription
from kdump.log.ranges import OffsetRange as OffsetRange
from kdump.log.records import DamageWarning as DamageWarning
from kdump.log.records import Records as Records
