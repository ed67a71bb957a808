"""Making a plan fit its budget: slices, boxes, tables on disk or beside a device. Pure."""
