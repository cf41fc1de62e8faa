/* Calls a function of liblorentz for each line on standard input, and prints the result as a line of
 * JSON: FUNCTION, without its "lorentz_" or "lorentz_experiment_", then a text and three numbers, "-" for
 * NULL. */
#include <lorentz.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lorentz_experiment *experiment;

static int is(const char *one, const char *other) { return !strcmp(one, other); }

/* `who` is one container, or two with a comma between. */
static int step(const char *who, long long a, long long b) {
    char names[256];
    snprintf(names, sizeof names, "%s", who ? who : "");
    char *comma = strchr(names, ',');
    if (comma) *comma = 0;
    const char *containers[] = {names, comma ? comma + 1 : NULL};
    const int64_t intervals[] = {a, b};
    return lorentz_experiment_step(experiment, who ? containers : NULL, intervals, comma ? 2 : 1);
}

static int on_experiment(const char *what, const char *who, double tdf, long long a, long long b) {
    lorentz_settings settings = {.timeslice_ns = a, .end_with_process = b == 1};
    if (is(what, "create")) return lorentz_experiment_create(who, tdf ? NULL : &settings, &experiment);
    if (is(what, "open")) return lorentz_experiment_open(who, &experiment);
    if (is(what, "clear")) return lorentz_experiment_clear(who);
    if (is(what, "add")) return lorentz_experiment_add(experiment, who, tdf, a);
    if (is(what, "add-parallel")) return lorentz_experiment_add_parallel(experiment, who, tdf, a, (uint32_t)b);
    if (is(what, "add-as")) {
        lorentz_joining options = {tdf, a, (uint32_t)b, 1};
        return lorentz_experiment_add_as(experiment, who, b < 0 ? NULL : &options);
    }
    if (is(what, "add-pid")) return lorentz_experiment_add(experiment, lorentz_pid((int)b), tdf, a);
    if (is(what, "remove")) return lorentz_experiment_remove(experiment, who);
    if (is(what, "experiment-dilate")) return lorentz_experiment_dilate(experiment, who, tdf);
    if (is(what, "synchronize")) return lorentz_experiment_synchronize(experiment);
    if (is(what, "start")) return lorentz_experiment_start(experiment);
    if (is(what, "pause")) return lorentz_experiment_pause(experiment);
    if (is(what, "stop")) return lorentz_experiment_stop(experiment);
    if (is(what, "set_interval")) return lorentz_experiment_set_interval(experiment, who, a, b);
    if (is(what, "experiment-step")) return step(who, a, b);
    if (is(what, "progress")) return lorentz_experiment_progress(experiment, a);
    if (is(what, "reset")) return lorentz_experiment_reset(experiment, a);
    if (is(what, "end")) return lorentz_experiment_end(experiment);
    return 1;
}

static int announced(const char *what, const char *who, double tdf, long long a, long long at_ns) {
    struct timespec at = {at_ns / 1000000000, at_ns % 1000000000};
    if (is(what, "dilate_at")) return lorentz_dilate_at(who, tdf, at);
    if (is(what, "freeze_at")) return lorentz_freeze_at(who, at);
    if (is(what, "unfreeze_at")) return lorentz_unfreeze_at(who, at);
    if (is(what, "leap_at")) return lorentz_leap_at(who, a, at);
    if (is(what, "step_at")) return lorentz_step_at(who, a, at);
    return 1;
}

static int on_clock(const char *what, const char *who, double tdf, long long a, char *made, size_t room) {
    if (is(what, "dilate")) return lorentz_dilate(who, tdf);
    if (is(what, "freeze")) return lorentz_freeze(who);
    if (is(what, "unfreeze")) return lorentz_unfreeze(who);
    if (is(what, "leap")) return lorentz_leap(who, a);
    if (is(what, "leap_like")) return lorentz_leap_like(who, lorentz_pid((int)a));
    if (is(what, "step")) return lorentz_step(who, a);
    if (is(what, "attach")) return lorentz_attach((int)a, tdf, 0, who, made, room);
    return 1;
}

/* The error's text, without what JSON cannot have in a text as it is. */
static const char *error(void) {
    static char text[1024];
    snprintf(text, sizeof text, "%s", lorentz_error());
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\') *at = '\'';
    return text;
}

int main(void) {
    char line[512], what[64], who[256], made[200];
    if (strcmp(lorentz_version(), LORENTZ_VERSION)) return 1;
    while (fgets(line, sizeof line, stdin)) {
        double tdf = 0;
        long long a = 0, b = 0;
        lorentz_time_t time = {0};
        char *json = NULL;
        strcpy(who, "-");
        made[0] = 0;
        if (sscanf(line, "%63s %255s %lf %lld %lld", what, who, &tdf, &a, &b) < 1) continue;
        const char *text = is(who, "-") ? NULL : who;
        int result = on_experiment(what, text, tdf, a, b);
        if (result == 1) result = on_clock(what, text, tdf, a, made, sizeof made);
        if (result == 1) result = announced(what, text, tdf, a, b);
        if (is(what, "time")) result = lorentz_time(text, &time);
        if (is(what, "status")) result = lorentz_experiment_status(experiment, &json);
        if (is(what, "close")) result = (lorentz_experiment_close(experiment), experiment = NULL, 0);
        printf("{\"ev\": \"%s\", \"result\": %d, \"error\": \"%s\", \"made\": \"%s\", \"status\": %s, ", what,
               result, result ? error() : "", made, json ? json : "null");
        printf("\"monotonic_ns\": %lld, \"wall_s\": %lld, \"tdf\": %.17g, \"frozen\": %d}\n",
               (long long)time.monotonic_ns, (long long)time.wall.tv_sec, time.tdf, time.frozen);
        fflush(stdout);
        lorentz_free(json);
    }
    return 0;
}
