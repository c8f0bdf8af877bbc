epl_find_pack(parquet PACKAGES "Debian's libsnappy-dev and libzstd-dev" HEADERS snappy-c.h zstd.h LIBRARIES snappy zstd)
