/* Two threads on one handle, each with a timeline of its own:
 *
 *     lorentz_timelines EXPERIMENT BUSY IDLE
 *
 * The container BUSY follows timeline 0 and goes 2 s once; IDLE follows timeline 1 and goes 1 ms, again
 * and again, until BUSY has arrived. Neither waits for the other. */
#include <lorentz.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static lorentz_experiment *experiment;
static atomic_int arrived;

static void must(const char *what, int result) {
    if (result) {
        fprintf(stderr, "%s: %d: %s\n", what, result, lorentz_error());
        exit(1);
    }
}

static void *busy(void *unused) {
    (void)unused;
    must("progress 0", lorentz_experiment_progress(experiment, 0));
    atomic_store(&arrived, 1);
    return NULL;
}

static void *idle(void *steps) {
    do {
        must("progress 1", lorentz_experiment_progress(experiment, 1));
        ++*(int *)steps;
    } while (!atomic_load(&arrived));
    return NULL;
}

static long long stands_at(const char *container) {
    lorentz_time_t time;
    must("time", lorentz_time(container, &time));
    return time.monotonic_ns;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    int steps = 0;
    if (argc != 4) return 2;
    must("open", lorentz_experiment_open(argv[1], &experiment));
    must("synchronize", lorentz_experiment_synchronize(experiment));
    long long begin = stands_at(argv[2]);
    must("interval", lorentz_experiment_set_interval(experiment, argv[2], 2000000000, 0));
    must("interval", lorentz_experiment_set_interval(experiment, argv[3], 1000000, 1));
    pthread_create(&threads[0], NULL, busy, NULL);
    pthread_create(&threads[1], NULL, idle, &steps);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("{\"ev\": \"arrived\", \"busy_ns\": %lld, \"idle_ns\": %lld, \"steps\": %d}\n",
           stands_at(argv[2]) - begin, stands_at(argv[3]) - begin, steps);
    must("stop", lorentz_experiment_stop(experiment));
    lorentz_experiment_close(experiment);
    return 0;
}
