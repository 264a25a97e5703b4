"""What search means: configurations, values, queries, answers. Pure; the same for records that are
indexed and for those that are scanned.
"""
