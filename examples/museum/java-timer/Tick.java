import java.util.Timer;
import java.util.TimerTask;

public class Tick {
    public static void main(String[] arguments) {
        new Timer().schedule(new TimerTask() {
            public void run() {
                System.out.println("tick");
            }
        }, 0, 200);
    }
}
