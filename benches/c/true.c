// The shortest program there is; built once static and once dynamic for exec.c.
int main(void) { return 0; }
