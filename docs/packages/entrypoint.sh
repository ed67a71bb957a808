#!/bin/sh
# The image's entrypoint. If the first argument is a program, for example dask-worker, run it with the other arguments.
# Otherwise run bucketflow with all arguments.
case ${1-} in
    "" | -*) ;;
    # Bucketflow's commands take precedence, because some of them are also names of programs: convert, man, watch.
    batch | bound | calibrate | cancel | check | circuit | completion | convert | dpop | draw | dynamic | \
        evaluate | examples | fit | forget | formats | generate | info | inspect | jobs | log | man | marginals | \
        plan | prune | report | reproduce | result | resume | serve | solve | submit | warm | watch) ;;
    *) if command -v "$1" > /dev/null; then exec "$@"; fi ;;
esac
exec bucketflow "$@"
