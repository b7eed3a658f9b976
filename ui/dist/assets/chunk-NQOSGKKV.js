function b(n,h,e,m){let a=Math.max(1,m-e),t=.6,u=Math.max(t,(h-n)/a*100),r=(n-e)/a*100;return{left:Math.max(0,Math.min(r,100-t)),width:Math.min(u,100-Math.max(0,Math.min(r,100-t)))}}export{b as a};
